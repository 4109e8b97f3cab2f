-- Asks Tollgate about a request. `http-request lua.tollgate` runs it and finds the answer in
-- `txn.tollgate_status`: 200, 429, 503, or 0 if Tollgate does not answer.

local url = "http://127.0.0.1:8080/v1/auth"
-- HAProxy 2.6 asks up to four times if nobody answers by then.
local timeout_ms = 100

-- What a client is told, each as a variable.
local told = {
  ["retry-after"] = "txn.tollgate_retry_after",
  ["x-ratelimit-limit"] = "txn.tollgate_limit",
  ["x-ratelimit-remaining"] = "txn.tollgate_remaining",
  ["x-ratelimit-reset"] = "txn.tollgate_reset",
}

core.register_action("tollgate", { "http-req" }, function(txn)
  -- Nothing that the client sent goes along, only what is set here.
  local answer = core.httpclient():get({
    url = url,
    timeout = timeout_ms,
    headers = {
      ["X-Forwarded-Method"] = { txn.f:method() },
      ["X-Forwarded-Uri"] = { txn.f:pathq() },
      ["X-Forwarded-Host"] = { txn.f:req_hdr("host") or "" },
      ["X-Forwarded-For"] = { txn.f:src() },
    },
  })
  local headers = answer and answer.headers or {}
  local status = answer and answer.status or 0
  -- A 503 of Tollgate says when to retry; that of the client itself means that nobody answered.
  if status >= 500 and not headers["retry-after"] then
    status = 0
  end
  txn:set_var("txn.tollgate_status", status)
  for name, values in pairs(headers) do
    if told[name] then
      txn:set_var(told[name], values[0])
    end
  end
end)
