//! The command line: parses arguments, calls the pipeline, maps errors to exit codes.
