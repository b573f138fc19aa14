"""Entry point of the training worker, which a node starts."""

import gc

gc.disable()  # as in sfnode/cli/sectioned_help.py
try:
    from sfnode.training.worker_process import main
finally:
    gc.freeze()
    gc.enable()

if __name__ == "__main__":
    main()
