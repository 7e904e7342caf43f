"""The web server of `jestlab serve`: pages over the stores of labs, live while runs train.

A request passes `access` (is it allowed?), `app` (which page?), and the module of its page, which reads the
store and fills in a template. Pages are complete without scripts; scripts then request the changes since
the cursor that `live` counts.
"""
