//! Remote: carries payloads to a host in one exec and reads their results back.
