//! Templates: minijinja, strict about undefined names, with the filters people expect.
