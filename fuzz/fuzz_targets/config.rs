#![no_main]
#![doc = "The fuzz target `config`."]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_fuzz::config::check(data));
