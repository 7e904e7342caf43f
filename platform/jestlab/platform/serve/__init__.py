"""The server of `jestlab serve`: pages over the stores of labs, live where runs train.

A request goes `access` (may it?) → `app` (which page?) → a page's module (what does the store say?) →
`templates`. Pages are whole without scripts; scripts then ask for what has changed since, by a cursor that
`tail` counts.
"""
