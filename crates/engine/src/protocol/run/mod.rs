//! A run over one primary: the stack of open passes, the rounds of a pass, and the stages of a round.

pub(crate) mod nesting;
pub(crate) mod pass;
pub(crate) mod passes;
pub(crate) mod reconciler;
pub(crate) mod rounds;
pub(crate) mod stage;
