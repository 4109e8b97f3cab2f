#![no_main]
#![doc = "The fuzz target `api`."]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_fuzz::api::check(data));
