"""Entry point of the process of `sfnode.training.conversion`."""

import gc

gc.disable()  # as in sfnode/__main__.py
try:
    from sfnode.training.conversion.process import main
finally:
    gc.freeze()
    gc.enable()

main()
