"""One module per part of the API: parse, call the service, render. No rules of the log live here."""
