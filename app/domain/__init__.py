"""Pure rules of the pipeline: no input or output, standard library only, imports nothing of ours."""
