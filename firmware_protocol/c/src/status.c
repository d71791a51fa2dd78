#include "earshot_xiaozhi/status.h"

const char *xz_status_name(xz_status status) {
  switch (status) {
    case XZ_OK: return "ok";
    case XZ_TRUNCATED: return "truncated";
    case XZ_TRAILING: return "trailing";
    case XZ_TOO_LARGE: return "too_large";
    case XZ_BAD_VERSION: return "bad_version";
    case XZ_BAD_KIND: return "bad_kind";
    case XZ_BAD_JSON: return "bad_json";
    case XZ_BAD_MESSAGE: return "bad_message";
    case XZ_FULL: return "full";
    case XZ_BAD_STATE: return "bad_state";
    case XZ_BAD_CONFIG: return "bad_config";
    case XZ_REFUSED: return "refused";
    case XZ_PROTOCOL: return "protocol";
    case XZ_TIMEOUT: return "timeout";
  }
  return "unknown";
}
