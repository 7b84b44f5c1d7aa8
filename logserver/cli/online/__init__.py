"""Commands that query a running server, through `logserver.client`.

Only modules in this folder may import the client, and only a command that talks to a server loads them: the other
commands start without the web stack.
"""
