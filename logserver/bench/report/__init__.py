"""What a comparison of targets came to, for people and programs.

Owns the way from result documents (logserver/bench/result.py) to a page, to Markdown and to JSON: `figures` and `goals`
compute, `contents` says what stands where and in which words, `html` (with `plots`) and `markdown` write it down.
Measures nothing. Each number is computed once, so the three forms cannot differ.
"""
