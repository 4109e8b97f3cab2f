#![no_main]
#![doc = "The fuzz target `key`."]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_fuzz::key::check(data));
