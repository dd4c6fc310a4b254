import json
import os

from pyinfra import host
from pyinfra.operations import files

with open(os.environ["BENCH_JOB"], encoding="utf-8") as file:
    job = json.load(file)

for src, dest in job["files"]:
    files.put(name="Put", src=src, dest=dest.replace("{host}", host.name), mode="644")
