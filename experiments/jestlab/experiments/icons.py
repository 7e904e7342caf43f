"""JEST on real pictures: emoji among logos, tokens, flags and interface icons.

    jestlab data fetch icons                        # 41 MB; 2 min on two cores
    jestlab launch icons                            # not run
    jestlab launch icons --scale mini               # not run

The web holds emoji, and four times as many other icons, captioned as web pages name pictures. The reference
learns from emoji of other styles with clean names; what is tested is a style that nobody trains on.
"""

from ml_collections import ConfigDict
