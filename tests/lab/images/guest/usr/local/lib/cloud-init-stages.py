"""Runs the four stages of cloud-init in one interpreter, each when systemd starts its unit.

Without KVM, to start Python and import cloud-init takes longer than what a stage then does. The first unit starts this
program and is up when the first stage is done; the others ask it, by cloud-init-stage, for theirs.
"""
import gc
import os
import socket
import sys

# It lives for seconds, and never has as much garbage as collecting it costs.
gc.disable()
# Both are optional: the check of user data against a schema, and the slower of two ways to guess an encoding.
sys.modules["jsonschema"] = None
sys.modules["chardet"] = None

from cloudinit.cmd.main import main  # noqa: E402

DOOR = "/run/cloud-init/stages"
STAGES = {
    "local": ["init", "--local"],
    "network": ["init"],
    "config": ["modules", "--mode=config"],
    "final": ["modules", "--mode=final"],
}


def run(stage):
    """A stage may redirect its output, so it gets copies of ours."""
    ours = [os.dup(1), os.dup(2)]
    try:
        return main(["cloud-init", *STAGES[stage]]) or 0
    except SystemExit as end:
        return end.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in enumerate(ours, 1):
            os.dup2(copy, number)
            os.close(copy)


def tell_systemd(message):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.connect(os.environ.pop("NOTIFY_SOCKET").replace("@", "\0", 1))
        notify.send(message)


def serve(door):
    stage = ""
    while stage != "final":
        client, _ = door.accept()
        with client:
            stage = client.recv(64).decode().strip()
            client.sendall(b"%d\n" % run(stage))


def start():
    os.makedirs(os.path.dirname(DOOR), exist_ok=True)
    # The generator's mark, which `cloud-init status` looks for.
    open("/run/cloud-init/enabled", "w").close()
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(DOOR)
        os.chmod(DOOR, 0o600)
        door.listen()
        failed = run("local")
        if failed:
            sys.exit(failed)
        tell_systemd(b"READY=1")
        serve(door)


start()
