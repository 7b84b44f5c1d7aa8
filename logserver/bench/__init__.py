"""Measuring: workloads put on servers, ours and others, and one document of what came out.

Owns `logserver bench`: what a workload is (`workload`), what stands under load (`targets`), how load is offered
(`loops`), and the result (`result`), which the report is made of. Talks to servers as child processes and over HTTP
only: must not import `api`, nor the service that is measured. Needs the extra `report`.
"""
