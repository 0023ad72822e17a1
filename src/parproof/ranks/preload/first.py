"""Imported first: half a million objects come now and stay; to look for garbage among them takes a quarter of the time."""

import gc

gc.disable()
