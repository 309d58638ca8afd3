//! /v1

mod generate;
