"""A module per part of the API: parse, call the service, render; no rule of the log lives here."""
