"""The report of a comparison of targets, for readers and for programs.

Owns the way from result documents (logserver/bench/result.py) to an HTML page, to Markdown and to JSON: `figures` and
`verdicts` compute, `contents` selects chapters and words, `html` (with `plots`) and `markdown` write them. Must not
measure. Each number is computed once, so the three forms cannot differ.
"""
