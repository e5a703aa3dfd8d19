"""Parts of the reference that are generated from the code: `make docs` writes them, and a unit test holds them current.

A generated part of a page stands between `<!-- generated: NAME -->` and `<!-- end of NAME -->`.
"""
