//! Every metric family saggar exposes, in one table
