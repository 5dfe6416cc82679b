"""A shop that changes all the time while five views follow it; at the end every view is proved right."""

from runnel.demo.play import run_demo

__all__ = ["run_demo"]
