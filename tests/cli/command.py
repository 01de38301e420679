"""Runs the command under test."""

import os
import subprocess


def discreet(*args, **kwargs):
    return subprocess.run([os.environ["DISCREET"], *args], capture_output=True, text=True, **kwargs)
