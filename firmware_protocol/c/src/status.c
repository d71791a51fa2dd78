#include "earshot_xiaozhi/status.h"

const char *earshot_status_name(earshot_status status) {
  switch (status) {
    case EARSHOT_OK: return "ok";
    case EARSHOT_TRUNCATED: return "truncated";
    case EARSHOT_TRAILING: return "trailing";
    case EARSHOT_TOO_LARGE: return "too_large";
    case EARSHOT_BAD_VERSION: return "bad_version";
    case EARSHOT_BAD_KIND: return "bad_kind";
    case EARSHOT_BAD_JSON: return "bad_json";
    case EARSHOT_BAD_MESSAGE: return "bad_message";
    case EARSHOT_FULL: return "full";
    case EARSHOT_BAD_STATE: return "bad_state";
    case EARSHOT_BAD_CONFIG: return "bad_config";
    case EARSHOT_REFUSED: return "refused";
    case EARSHOT_PROTOCOL: return "protocol";
    case EARSHOT_TIMEOUT: return "timeout";
  }
  return "unknown";
}
