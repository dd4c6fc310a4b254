import json
import os

with open(os.environ["BENCH_JOB"], encoding="utf-8") as file:
    job = json.load(file)

hosts = [
    (
        host["name"],
        {
            "ssh_hostname": host["address"],
            "ssh_port": job["port"],
            "ssh_user": job["user"],
            "ssh_key": job["key"],
            "ssh_known_hosts_file": job["known_hosts"],
            "ssh_config_file": "/dev/null",
        },
    )
    for host in job["hosts"]
]
