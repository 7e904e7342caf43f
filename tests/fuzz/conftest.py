"""Where the targets, and what they fill stores with, are found."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "platform" / "support")]
