"Papermill templates, installed as data of the package `daca_grpo.runs`."
