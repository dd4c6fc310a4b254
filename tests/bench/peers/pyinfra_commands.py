import json
import os

from pyinfra import host
from pyinfra.operations import server

with open(os.environ["BENCH_JOB"], encoding="utf-8") as file:
    job = json.load(file)

for command in job["commands"]:
    server.shell(name="Run", commands=[command.replace("{host}", host.name)])
