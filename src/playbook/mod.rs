//! Playbooks and roles, loaded and typed; imports and roles are expanded here.
