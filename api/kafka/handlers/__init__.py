"""The handlers of the wire protocol's APIs, by family. Each turns one request message into one response message."""
