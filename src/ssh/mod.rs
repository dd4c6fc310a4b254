//! SSH transport: connect, exec, tunnel. Knows nothing of tasks or playbooks.
