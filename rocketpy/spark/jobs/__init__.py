"""Jobs on topics, archives and store directories: `rocketpy spark JOB`.

Each is a function with a thin command around it, and a module that `python -m` and `spark-submit`
run. Nothing here is imported before a job is called.
"""
