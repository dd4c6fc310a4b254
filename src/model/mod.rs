//! Model: the words every stage shares. Spans, names, values, effects, outcomes.
