"""Commands that ask a running server, by `logserver.client`.

Only what lies in this folder may import the client, and only a command that talks to a server loads it:
the others start without the web stack.
"""
