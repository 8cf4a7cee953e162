"""Benchmarks: time, memory, share of the machine's speed, and how cost grows.

One module per word of `clustercaps bench` (`models`, `layers`, `scaling`, `epoch`, `peers`,
`learning`), each with `run(options)`. They stand on `cases` (what is timed), `check` (is it
right?), `measure` and `peak_memory` (how it is measured), `work` (how much there is to compute),
`comparison_report` and `csv_output` (what is printed and stored).
"""
