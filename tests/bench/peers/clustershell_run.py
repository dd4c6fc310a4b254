"""Runs commands on hosts, or copies files to them, by ClusterShell: what `clush` does, in one process, with fifty hosts at once.

A step is over when all hosts have done it, as with clush. Where there are several steps, each host keeps its connection
(ControlPersist), which clush leaves to the settings of ssh.
"""

import json
import shlex
import sys

from ClusterShell.Task import task_self


def options(job, steps):
    words = [
        "-Fnone",
        f"-oPort={job['port']}",
        f"-oIdentityFile={job['key']}",
        "-oIdentitiesOnly=yes",
        f"-oUserKnownHostsFile={job['known_hosts']}",
        "-oGlobalKnownHostsFile=none",
        "-oBatchMode=yes",
    ]
    if steps > 1:
        words += ["-oControlMaster=auto", "-oControlPersist=60s", f"-oControlPath={job['sockets']}/%h"]
    return shlex.join(words)


def run(task):
    """All that is scheduled, to its end."""
    task.resume()
    if task.max_retcode() != 0:
        failed = [f"{nodes}: {code}" for code, nodes in task.iter_retcodes() if code != 0]
        said = [str(buffer) for buffer, _ in task.iter_buffers()]
        sys.exit("\n".join(failed + said))


def commands(task, job):
    for command in job["commands"]:
        for host in job["hosts"]:
            task.shell(command.replace("{host}", host["name"]), nodes=host["address"])
        run(task)


def chain(task, job):
    last = {host["address"]: "0" for host in job["hosts"]}
    for command in job["commands"]:
        for host in job["hosts"]:
            address = host["address"]
            text = command.replace("{host}", host["name"]).replace("{last}", last[address])
            task.shell(text, nodes=address)
        run(task)
        for address in last:
            last[address] = task.node_buffer(address).decode().strip()


def files(task, job):
    for source, dest in job["files"]:
        for host in job["hosts"]:
            task.copy(source, dest.replace("{host}", host["name"]), nodes=host["address"])
        run(task)


def main():
    with open(sys.argv[2], encoding="utf-8") as file:
        job = json.load(file)
    task = task_self()
    task.set_info("fanout", job["at_once"])
    task.set_info("ssh_user", job["user"])
    task.set_info("ssh_options", options(job, len(job.get("commands") or job["files"])))
    {"commands": commands, "chain": chain, "files": files}[sys.argv[1]](task, job)


main()
