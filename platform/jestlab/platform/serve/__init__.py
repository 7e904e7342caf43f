"""The web server of `jestlab serve`: pages over the stores of labs, live while runs train.

A request passes `access` (is it allowed?), `app` (which page?), and the module of its page, which reads the
store and fills in a template. Pages are complete without scripts; a script then requests the same page
regularly, and replaces the elements with `data-live` whose content has changed.
"""
