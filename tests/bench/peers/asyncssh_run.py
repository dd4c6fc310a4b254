"""Runs commands on hosts, or copies files to them, by asyncssh: one connection a host, one step after the other."""

import asyncio
import json
import sys

import asyncssh


def connect(job, host):
    return asyncssh.connect(
        host["address"],
        port=job["port"],
        username=job["user"],
        client_keys=[job["key"]],
        known_hosts=job["known_hosts"],
        config=None,
        agent_path=None,
    )


async def commands(job, host):
    """Commands that need nothing of each other."""
    async with connect(job, host) as connection:
        for command in job["commands"]:
            await connection.run(command.replace("{host}", host["name"]), check=True)


async def chain(job, host):
    """Each command needs what the one before it has said."""
    async with connect(job, host) as connection:
        last = "0"
        for command in job["commands"]:
            command = command.replace("{host}", host["name"]).replace("{last}", last)
            result = await connection.run(command, check=True)
            last = result.stdout.strip()


async def files(job, host):
    async with connect(job, host) as connection, connection.start_sftp_client() as sftp:
        for source, dest in job["files"]:
            await sftp.put(source, dest.replace("{host}", host["name"]))


async def main():
    with open(sys.argv[2], encoding="utf-8") as file:
        job = json.load(file)
    work = {"commands": commands, "chain": chain, "files": files}[sys.argv[1]]
    await asyncio.gather(*(work(job, host) for host in job["hosts"]))


asyncio.run(main())
