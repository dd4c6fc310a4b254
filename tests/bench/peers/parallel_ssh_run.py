"""Runs commands on hosts, or copies files to them, by parallel-ssh (libssh2): one connection a host, fifty at once, one step after the other.

It does not check the keys of hosts: this client cannot.
"""

import json
import sys

from gevent import joinall
from pssh.clients import ParallelSSHClient


def run(client, lines):
    """A line for each host. What each of them says."""
    output = client.run_command("%s", host_args=[(line,) for line in lines])
    client.join(output)
    said = []
    for host in output:
        text = "\n".join(host.stdout)
        if host.exit_code != 0:
            sys.exit(f"{host.host}: {host.exit_code}: {text}")
        said.append(text)
    return said


def commands(client, job):
    for command in job["commands"]:
        run(client, [command.replace("{host}", host["name"]) for host in job["hosts"]])


def chain(client, job):
    last = ["0" for _ in job["hosts"]]
    for command in job["commands"]:
        lines = [
            command.replace("{host}", host["name"]).replace("{last}", value)
            for host, value in zip(job["hosts"], last, strict=True)
        ]
        last = [said.strip() for said in run(client, lines)]


def files(client, job):
    for source, dest in job["files"]:
        args = [{"dest": dest.replace("{host}", host["name"])} for host in job["hosts"]]
        sent = client.copy_file(source, "%(dest)s", recurse=True, copy_args=args)
        joinall(sent, raise_error=True)


def main():
    with open(sys.argv[2], encoding="utf-8") as file:
        job = json.load(file)
    client = ParallelSSHClient(
        [host["address"] for host in job["hosts"]],
        user=job["user"],
        port=job["port"],
        pkey=job["key"],
        pool_size=job["at_once"],
        identity_auth=False,
        allow_agent=False,
        num_retries=1,
    )
    {"commands": commands, "chain": chain, "files": files}[sys.argv[1]](client, job)


main()
