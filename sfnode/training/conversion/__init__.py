"""Door: `process`. Turn weights of other formats into safetensors, in a separate process: strangers made the files.

`sfnode.model_files` starts the process with FORM SOURCE OUT, waits for it and may kill it.
"""
