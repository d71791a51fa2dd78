// Labels, choices and help of the settings in French, by the server's English text.

/** @type {Record<string, string>} */
export const SETTING_TEXTS = {
  "Agent ID": "Identifiant de l’agent",
  "Answer timeout (s)": "Attente d’une réponse entière (s)",
  "Barge in": "Interruption par la parole",
  "Connect timeout (s)": "Délai de connexion (s)",
  "Context tokens": "Taille du contexte (jetons)",
  "Default instructions": "Instructions fournies",
  Detection: "Détection de la fin",
  Eagerness: "Empressement",
  Engine: "Moteur",
  "First token timeout (s)": "Attente du premier jeton (s)",
  Images: "Images",
  Language: "Langue",
  Languages: "Langues",
  "Max drafts": "Nombre maximal d’ébauches",
  "Max output tokens": "Longueur maximale de la réponse (jetons)",
  "Max requests": "Nombre maximal de requêtes",
  "No speech": "Bruits sans parole",
  "Noise reduction": "Réduction du bruit",
  "Prefix padding (ms)": "Son gardé avant la parole (ms)",
  "Silence (ms)": "Silence (ms)",
  "Starts thinking": "Commence par réfléchir",
  Strict: "Strict",
  Temperature: "Température",
  Thinking: "Réflexion",
  Threshold: "Seuil",
  Token: "Jeton d’accès",
  "Token timeout (s)": "Attente entre deux jetons (s)",
  Tools: "Outils",
  URL: "Adresse",
  "Unload after (s)": "Décharger après (s)",
  Use: "Mode de commande",
  "Verify TLS": "Vérifier le certificat TLS",
  conversation: "agent de conversation",
  far_field: "lointain",
  high: "élevé",
  low: "faible",
  medium: "moyen",
  near_field: "proche",
  normal: "habituel",
  on: "Activé",
  patient: "patient",
  semantic_vad: "silence et mots",
  server_vad: "silence seul",
  strict: "strict",
  tools: "agent et outils",
  wake_word: "mot d’activation ou stop",
  "Address of Home Assistant, like http://homeassistant.local:8123. Empty: the demo home is used.":
    "Adresse de Home Assistant, par exemple http://homeassistant.local:8123. Vide : la maison de démonstration est utilisée.",
  "Address of the API including its version: `http://127.0.0.1:8000/v1`.":
    "Adresse de l’API, version comprise : `http://127.0.0.1:8000/v1`.",
  "Control of Home Assistant by a language model: by sentences to its conversation agent (conversation), or also by the tools of its MCP server, which needs an integration there (tools). Recognised commands are always sent as sentences.":
    "Comment un modèle de langage commande Home Assistant : par des phrases à son agent de conversation (agent de conversation), ou aussi avec les outils de son serveur MCP, qui demande une intégration (agent et outils). Les commandes reconnues sont toujours envoyées comme des phrases.",
  "Filter for words that were recognised in noise: off keeps all of them; normal drops those that the model itself doubts; strict also drops those that voice activity detection doubts. A request can override this with no_speech_threshold.":
    "Filtre des mots reconnus dans du bruit : « Désactivé » les garde tous ; « habituel » écarte ceux dont le modèle doute lui-même ; « strict » écarte aussi ceux dont la détection de la voix doute. Une requête peut changer cela avec no_speech_threshold.",
  "Handling of the echo of an answer in the microphone, for clients without echo cancellation: none (off), the echo is cancelled (cancel), or the microphone is ignored while an answer plays (half_duplex).":
    "Traitement de l’écho d’une réponse dans le microphone, pour les clients sans annulation d’écho : aucun (Désactivé), l’écho est annulé (L’annuler), ou le microphone est ignoré pendant une réponse (N’écouter que dans le silence).",
  "How readily semantic_vad ends a turn: high is fastest, low waits longest.":
    "Rapidité avec laquelle la détection par silence et mots conclut que vous avez fini : « élevé » est le plus rapide, « faible » attend le plus longtemps.",
  "ISO 639-1 codes of the languages that the model understands. Empty: any.":
    "Codes (ISO 639-1) des langues que le modèle comprend. Vide : toutes.",
  "Id of the conversation agent in Home Assistant that receives the sentences.":
    "Identifiant de l’agent de conversation de Home Assistant qui reçoit les phrases.",
  "Key that the server asks for; empty: none.": "Clé que le serveur demande. Vide : aucune.",
  "Language (ISO 639-1) of sessions whose client names none.":
    "Langue (ISO 639-1) des sessions dont le client n’en indique aucune.",
  "Language of the sentences for Home Assistant. Empty: the user's language.":
    "Langue des phrases pour Home Assistant. Vide : celle de l’utilisateur.",
  "Long-lived access token, from the profile of the user whose rights Earshot gets.":
    "Jeton d’accès de longue durée, tiré du profil de l’utilisateur dont Earshot reçoit les droits.",
  "Longest answer, including thoughts; a spoken answer has 50 to 150 tokens. Never more than a quarter of the context is used: servers refuse a prompt that leaves no room for the answer.":
    "Longueur maximale de la réponse, réflexion comprise ; une réponse parlée compte de 50 à 150 jetons. Jamais plus d’un quart du contexte n’est utilisé : les serveurs refusent une demande qui ne laisse pas de place à la réponse.",
  "Longest wait between two tokens.": "Attente maximale entre deux jetons.",
  "Longest wait for a connection.": "Attente maximale d’une connexion.",
  "Longest wait for an answer that is not streamed.":
    "Attente maximale d’une réponse qui n’arrive pas par morceaux.",
  "Maximum number of answers, over all sessions, that are started before it is certain that the user has finished. Unused ones cost money with a paid language model. 0: none.":
    "Nombre maximal de réponses, toutes sessions comprises, commencées avant qu’il soit certain que l’utilisateur a fini. Celles qui ne servent pas coûtent de l’argent avec un modèle payant. 0 : aucune.",
  "Most requests at once; a further one waits. Not set: 16, or more with many drafts.":
    "Nombre maximal de requêtes à la fois ; une de plus attend. Sans valeur : 16, ou plus avec beaucoup de brouillons.",
  "Maximum number of tokens in one answer. Not set: no limit.":
    "Nombre maximal de jetons d’une réponse. Non défini : pas de limite.",
  "Method of detecting the end of a turn. server_vad waits for silence_ms of silence; semantic_vad also considers the words, and waits as long as eagerness allows.":
    "Façon de reconnaître que vous avez fini de parler. « silence seul » attend la durée de silence réglée ; « silence et mots » tient aussi compte des mots et attend autant que l’empressement le permet.",
  "Milliseconds of audio that are kept from before the first speech frame.":
    "Durée du son, en millisecondes, gardée avant le début de la parole.",
  "Milliseconds of silence that end the user's turn. A lower value is faster, but interrupts people who pause.":
    "Durée de silence, en millisecondes, après laquelle vous avez fini. Une valeur plus petite est plus rapide, mais coupe la parole à qui fait une pause.",
  "Model to load at start: a folder in models_dir, its short name (tiny, large-v3-turbo), pocketsphinx, the path of a folder, or auto.":
    "Modèle chargé au démarrage : un dossier de models_dir, son nom court (tiny, large-v3-turbo), pocketsphinx, le chemin d’un dossier, ou automatique.",
  "Name of an engine (`earshot doctor` lists them), or auto.":
    "Nom d’un moteur (`earshot doctor` les énumère), ou automatique.",
  "Name of its engine.": "Nom de son moteur.",
  "Name of the model; auto: the first that the server lists.":
    "Nom du modèle ; auto : le premier que le serveur indique.",
  "Names of the tools that the language model may use. Not set: all tools.":
    "Noms des outils que le modèle de langage peut utiliser. Non défini : tous.",
  "Rate of speech of the voice; 1 is normal.": "Débit de la voix ; 1 est la normale.",
  "Reduction of steady noise before speech detection and recognition: none (off), a little, for a microphone near the mouth (near_field), or more, for one across the room (far_field).":
    "Réduction des bruits constants avant la reconnaissance : aucune (Désactivé), légère, pour un microphone près de la bouche (proche), ou plus forte, pour un microphone à l’autre bout de la pièce (lointain).",
  "Sampling temperature of the language model. Not set: the engine's default.":
    "Température d’échantillonnage du modèle de langage. Non définie : celle du moteur.",
  "Sampling temperature. Not set: the server's default.":
    "Température d’échantillonnage. Non définie : celle du serveur.",
  "Seconds without a use after which a model is unloaded. The default models and pinned ones stay. 0: a model stays until another one needs its memory.":
    "Secondes sans utilisation après lesquelles un modèle est déchargé. Les modèles par défaut et les modèles épinglés restent. 0 : un modèle reste jusqu’à ce qu’un autre ait besoin de sa mémoire.",
  "Size of the context. Not set: as the server says (vLLM, llama.cpp, Ollama), else 8192.":
    "Taille du contexte. Non définie : celle que le serveur indique (vLLM, llama.cpp, Ollama), sinon 8192.",
  "Speech probability at or above which a frame counts as speech.":
    "Probabilité à partir de laquelle un fragment de son compte comme de la parole.",
  "Speech that interrupts an answer that is playing: any speech (on), only meaningful words (patient), only the wake word or a word that means stop (wake_word), or none (off).":
    "Paroles qui interrompent une réponse en cours : toutes (Activé), seulement des mots qui ont un sens (patient), seulement le mot d’activation ou un mot comme « stop » (mot d’activation ou stop), ou aucune (Désactivé).",
  "System prompt of the language model. It replaces Earshot's own.":
    "Consigne de base du modèle de langage. Elle remplace celle d’Earshot.",
  "True: an unknown model name is an error (404) that lists the known ones. False: an unknown name means the server's default model. Names of OpenAI's service always mean the default model.":
    "Activé : un nom de modèle inconnu est une erreur (404) qui énumère les noms connus. Désactivé : un nom inconnu désigne le modèle par défaut du serveur. Les noms du service d’OpenAI désignent toujours le modèle par défaut.",
  "Voice of the answers: default, a voice, an engine, or engine/voice.":
    "Voix des réponses : automatique, une voix, un moteur, ou moteur/voix.",
  "Wait for the first token, retry included. A caller gives up sooner, but a cold model is slow.":
    "Attente du premier jeton, nouvel essai compris. La personne qui attend renonce plus tôt, mais un modèle qui vient d’être chargé est lent.",
  "Wake word, e.g. okay_nabu. Speech is ignored until it is detected. Empty: sessions listen from the start.":
    "Mot d’activation, par exemple okay_nabu. La parole est ignorée tant qu’il n’est pas détecté. Vide : les sessions écoutent dès le début.",
  "Whether the chat template itself opens the thought. Text before `</think>` is not spoken then.":
    "Le gabarit de conversation ouvre lui-même la réflexion. Le texte qui précède `</think>` n’est alors pas prononcé.",
  "Whether the language model gets Earshot's own system prompt if there is no other. It asks for short spoken answers without markdown, names the date and the room, and is written in the language of the answer.":
    "Le modèle de langage reçoit la consigne d’Earshot s’il n’y en a pas d’autre. Elle demande des réponses parlées courtes sans Markdown, indique la date et la pièce, et est écrite dans la langue de la réponse.",
  "Whether the model may call tools. Off for models that cannot.":
    "Le modèle peut appeler des outils. À désactiver pour les modèles qui en sont incapables.",
  "Whether the model may think before it answers, which takes seconds if it can.":
    "Le modèle peut réfléchir avant de répondre, ce qui prend quelques secondes s’il en est capable.",
  "Whether the model takes images, which no server announces.":
    "Le modèle accepte les images, ce qu’aucun serveur n’annonce.",
  "Whether to verify the certificate of Home Assistant. False accepts any, such as a self-signed one.":
    "Le certificat de Home Assistant est vérifié. Désactivé : tous sont acceptés, même auto-signés.",
};
