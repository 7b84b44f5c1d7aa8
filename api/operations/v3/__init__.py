"""The operations under /v3, as the REST Proxy has them: topics and configs, records, groups."""
