"""Benchmarking: run workloads on servers, this project's and others, and write one document of results.

Owns `logserver bench`: workloads (`workload`), servers under load (`targets`), how load is offered (`loops`), and the
result (`result`) that a report is made of. Starts servers as child processes and talks to them over HTTP only: must not
import `api`, nor the service that is measured. Needs the extra `report`.
"""
