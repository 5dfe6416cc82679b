"""The published benchmarks. Each module measures one question and shows it: `measure` gives plain figures, `sheet` shows them.

What they share: `star` makes data and changes, `workplace` gives projects, `epochs` times, `recompute` is what we are compared
with, `report` prints and keeps.
"""
