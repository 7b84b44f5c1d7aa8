"""The service: what every front end asks for, on asyncio, over one store."""
